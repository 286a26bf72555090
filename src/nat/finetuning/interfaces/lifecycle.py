"""What a component of a finetuning run answers if its methods are called in another order than the guide's."""


def check_ready(component: object, ready: object, *, first: str = "initialize(run_config)") -> None:
    """Raise RuntimeError unless `ready` has been set, which the method `first` does."""
    if ready is None:
        raise RuntimeError(f"{type(component).__name__} is not initialized: await {first} first")
