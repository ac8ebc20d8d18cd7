"""Commands on bills, prices and budgets."""
