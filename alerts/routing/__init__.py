"""Who hears of an alert, as pure stages with reasons: routes, inhibition, silences, acknowledgements, mute times."""
