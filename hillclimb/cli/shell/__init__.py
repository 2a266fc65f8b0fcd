"""The shell around the commands: sign-in, pages in a browser, exports, first specs."""
