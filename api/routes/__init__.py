"""HTTP faces: parse, one call into the domain, answer."""
