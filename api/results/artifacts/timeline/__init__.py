"""The timeline of a run or a step as a trace: phases, learner, rollouts with turns, engines."""
