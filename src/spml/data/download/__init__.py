"""Downloads that resume, and archives that unpack safely."""
