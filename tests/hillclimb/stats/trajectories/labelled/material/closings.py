"""Last words of a policy: claims that the task is completed, admissions, and neither."""

from __future__ import annotations

import random
from collections.abc import Mapping

CLAIMS = (
    "The task is complete.",
    "Done.",
    "All done!",
    "Everything has been taken care of.",
    "I have completed the task as requested.",
    "The request has been carried out successfully.",
    "Finished: the change is saved.",
    "That's it, all set.",
    "I've made the change you asked for.",
    "Your request was successful.",
    "✅ Task accomplished",
    "All the steps are finished and the result is in place.",
    "Consider it done. Anything else?",
    "The job is finished.",
    "**Status:** completed\n\nThe requested change is now live.",
    "Successfully processed. No errors were reported.",
    "I went ahead and did exactly what you asked; it worked the first time.",
    "Summary: looked it up, applied the change, verified it. Complete.",
    "It is done, and nothing is left to do.",
    "We're all set: the update went through.",
)
_EFFECTS: Mapping[str, tuple[str, ...]] = {
    "booking": (
        "Your room is booked.",
        "The booking has been updated as you wished.",
        "I have made the reservation, enjoy your stay!",
    ),
    "github": (
        "The issue has been updated as requested.",
        'I took care of the issue "could not save draft" and it is done.',
        "I have made all the changes to the issue.",
    ),
    "outlook": (
        "The mail has been dealt with as you asked.",
        'Done: the mail "unable to attend" is handled.',
        "I have finished with your mailbox.",
    ),
    "reddit": (
        "The post now is as you wanted it.",
        "I have done what you asked for in the community.",
        "Posted, voted and commented as requested: complete.",
    ),
    "ticketmaster": (
        "Your tickets are bought and paid.",
        "The purchase is complete.",
        "I have secured and paid the seats for you.",
    ),
    "fira": (
        "The ticket is where you wanted it: done.",
        "I have completed the work on the ticket.",
        'The ticket "cannot log in" is finished with.',
    ),
    "hubspot": (
        "The deal has been updated successfully.",
        "I have set everything on the deal that you asked for.",
        "The record in the CRM is complete now.",
    ),
    "zillow": (
        "Your request for the home has been completed.",
        "The home is all arranged for you: done.",
        "I have finished the arrangements with the agent.",
    ),
}
ADMISSIONS = (
    "I could not complete the task.",
    "I was not able to finish this.",
    "Unfortunately I am unable to do what you asked.",
    "The task is not complete: the last change is missing.",
    "I only partly completed the request; one change is still to be made.",
    "This did not work, sorry. The state is unchanged.",
    "I failed to make the change successfully.",
    "I couldn't find the entry, so nothing is done.",
    "I am not sure whether the change went through.",
    "Not done: the tool kept refusing the call.",
    "I can't complete this with the tools I have.",
    "I tried everything but was unable to get it done.",
    "It seems that the update was not successful.",
    "I have to give up here; the request remains unfinished.",
    "I doubt that this is finished, please check it yourself.",
    "The booking could not be completed.",
)
NEITHER = (
    "Should I go ahead with the first one?",
    "Next I would look up the entry and make the change.",
    "Which of the two do you mean?",
    "The search shows three entries.",
    "Please tell me which entry you would like.",
    "I will look into it tomorrow.",
    "There are several candidates in the list.",
    "Let me know how you want to proceed.",
)
QUESTIONS = (
    "Would you like me to do anything else?",
    "Is there anything more that I can help with?",
    "Please confirm and I will end the session.",
    "The change has been made. How would you like to proceed?",
    "I believe that was all. Let me know if I missed something.",
)
LOOSE_ENDS = (
    "[done]",
    "DONE",
    "done",
    "<finish>",
    "</done>",
    "TASK COMPLETE",
    "<|done|>",
    "I am done now.",
    "The task is complete.",
    "Final answer: all changes are saved.",
    "",
)
"""Attempts to end an episode that no environment takes for `<done>`."""
PREAMBLES = (
    "",
    "",
    "",
    "Let me look that up.",
    "I will make the change now.",
    "First the search.",
    "Next step.",
)


def claim(env_key: str, rng: random.Random) -> str:
    """Return words that claim that the task is completed."""
    return rng.choice(CLAIMS if rng.random() < 0.6 else _EFFECTS[env_key])
