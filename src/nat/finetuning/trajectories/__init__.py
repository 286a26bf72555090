"""From an evaluation's rollouts to groups of trajectories; every module is pure.

The path of a token id from the wire to the trainer:

    LLMCall                       recorded on the LLM_END step (`nat.capture.tap`)
    SeenCall                      the call and the function that made it (`calls`)
    CallTokens                    its prompt, its answer and what that is compared by (`calls`)
    TrainingRow                   merged while `messages` sorts the calls into conversations, for the record
    EpisodeItem                   prompt, answer and logprobs in the guide's episode (`episodes`)
    TrainingRollout               merged from the items, as plug-ins have left them (`rows`)
"""
