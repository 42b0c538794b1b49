"""Numbers and marks beside pairs: weights, goals, stages, spans, scores. Functions of recorded values, no models."""
