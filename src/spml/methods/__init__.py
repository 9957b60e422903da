"""Methods that need more than a batch: labels kept for every item, and passes over the training split."""
