"""Rendering, lists, forms and charts of all pages."""
