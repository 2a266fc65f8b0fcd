"""A small server of the Tinker protocol over our own learner and engine, for one machine."""
