"""Commands that have much to say for themselves: a file each, registered in `app`."""
