"""model: query texts come in; slot vectors and their products with one row per phrase go out (torch)."""
