"""The weights that training starts from: their digest, and each rank reading its part."""
