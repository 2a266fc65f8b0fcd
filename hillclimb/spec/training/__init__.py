"""Spec sections: sampling, loss, optimizer, schedule, evaluation."""
