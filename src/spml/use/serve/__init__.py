"""A web page and an HTTP endpoint that tag pictures."""
