"""The API's description of itself: its OpenAPI document, and the pages of the documentation."""
