"""Results of a run: metrics, evaluations, probes, validations and stored artifacts."""
