"""What every part of the controller stands on: results with records and responses, and state that can go back to an earlier offset."""
