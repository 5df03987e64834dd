"""What a broker's requests do: one module an API or two, `table` names them all, `dispatch` carries them out."""
