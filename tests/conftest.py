"""What all tests share: how long Hypothesis looks.

`make nightly` takes the profile of that name; it reads nothing and feeds no fixture.
"""

from hypothesis import settings

settings.register_profile("nightly", max_examples=5_000, deadline=None)
