"""Programs as documents print them, with the software of runtime versions."""
