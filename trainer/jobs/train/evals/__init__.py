"""Evaluations of a training run: carried out, remembered, ended early."""
