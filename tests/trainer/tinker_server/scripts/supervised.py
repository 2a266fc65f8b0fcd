"""A supervised script as a user of Tinker's SDK has it: nothing here knows of our server.

Address and key come from TINKER_BASE_URL and TINKER_API_KEY, the model is the server's first.
"""

from __future__ import annotations

import sys

import tinker
from tinker import types

NUM_STEPS = 16
TEXTS = ("book room 12", "book room 31", "cancel room 12")


def main() -> dict[str, float | str]:
    """Train on a few texts, save, go on from the state, and sample; return what came of it."""
    service = tinker.ServiceClient()
    base_model = service.get_server_capabilities().supported_models[0].model_name
    assert base_model is not None
    training = service.create_lora_training_client(base_model=base_model)
    tokenizer = training.get_tokenizer()
    data = [datum(tokenizer.encode(text)) for text in TEXTS]
    losses = []
    for _ in range(NUM_STEPS):
        forward = training.forward_backward(data, "cross_entropy")
        optim = training.optim_step(types.AdamParams(learning_rate=5e-3))
        losses.append(forward.result().metrics["loss:sum"])
        optim.result()
    state = training.save_state("final").result()
    resumed = service.create_training_client_from_state_with_optimizer(state.path)
    again = resumed.forward(data, "cross_entropy").result().metrics["loss:sum"]
    sampler = training.save_weights_and_get_sampling_client()
    drawn = sampler.sample(
        types.ModelInput.from_ints(tokenizer.encode("book room ")),
        num_samples=2,
        sampling_params=types.SamplingParams(max_tokens=4, temperature=0.0),
    ).result()
    return {
        "first": losses[0],
        "last": training.forward(data, "cross_entropy").result().metrics["loss:sum"],
        "resumed": again,
        "text": tokenizer.decode(drawn.sequences[0].tokens),
    }


def datum(tokens: list[int]) -> types.Datum:
    """Every token but the first is a target of weight 1."""
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)},  # type: ignore[dict-item]
    )


if __name__ == "__main__":
    sys.stdout.write(f"{main()}\n")
