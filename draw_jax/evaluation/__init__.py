"""Evaluation of a trained model, its report, and the paper's numbers beside it."""
