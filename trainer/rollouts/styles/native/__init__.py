"""Tools, calls and answers in the form of the model's own chat template: `tool_format: native`.

The rules are Hillclimb's; the form is that which any chat server gives the model, so that a served
policy reads what it was trained on. All of it is read from the template of the model directory.
"""
