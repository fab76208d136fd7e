"""One file per deployed function, and what all of them share: `front`, `requests`, `slots`."""
