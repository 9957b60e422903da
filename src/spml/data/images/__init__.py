"""Pictures: decoded once, cached, and handed out in batches."""
