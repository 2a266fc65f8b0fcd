"""Operating-system parts: processes, ports, executables."""
