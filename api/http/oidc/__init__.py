"""Sign-in of people by OpenID Connect: the provider, and the state of a sign-in in the browser."""
