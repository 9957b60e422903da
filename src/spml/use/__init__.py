"""Using a trained model: predictions and evaluation."""
