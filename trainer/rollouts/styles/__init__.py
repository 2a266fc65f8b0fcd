"""Prompt styles: the words of the prompt, and the rules by which turns are read and answered."""
