"""Making the tiny models that the demo starts from. A build tool: training never imports it."""
