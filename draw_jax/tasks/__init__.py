"""What the training loop, the evaluator, the figures and the report ask of a model."""
