"""A model's optimizer whose steps lanes do: parameters and moments, both ways."""
