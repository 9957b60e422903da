"""Methods that need more than a batch: stored labels, and passes over the training split."""
