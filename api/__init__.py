"""The HTTP edges: Google's wire and Podyard's own REST. Thin: parse, authorise, call, format."""
