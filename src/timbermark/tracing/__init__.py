"""A copy for each customer, and which customer's copy a suspect comes from."""
