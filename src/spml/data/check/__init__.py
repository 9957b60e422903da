"""What `spml check` looks at."""
