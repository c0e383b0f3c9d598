"""What only teaching needs: scheduled sampling, exposure bias, a beam search explained, one token followed.

Below cli and views one file imports this package: `training/step.py` feeds the model its own predictions where
`train.scheduled_sampling` asks for them. The variants of a block are in `gptlite/model/variants.py`, since the model
imports nothing but its config.
"""
