"""Rows of prices, usage, invoices and budgets."""
