"""What the API says of itself: its OpenAPI document and the pages of the documentation."""
