"""Model families that engine and learner compute exactly; each is one file here."""
