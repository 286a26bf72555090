"""From an evaluation's rollouts to groups of trajectories; every module is pure.

The path of a token id from the wire to the trainer:

    LLMCall                       recorded on the LLM_END step (`nat.capture.tap`)
    SeenCall                      the call and the function that made it (`calls`)
    CallTokens                    its prompt, its answer and what that is compared by (`calls`)
    TrainingRow                   merged once, while `messages` sorts the calls into conversations
    RecordedTrajectory.rows       beside the guide's episode (`outcome`, `rows`)
    TrainingRollout               what an exact backend gets (`rows`)

`episodes` makes the guide's `EpisodeItem`s, and reads tokens back from those that a plug-in's builder made.
"""
