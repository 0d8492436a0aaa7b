"""Operations: is it alive, is it ready, how is it doing. Facts are gathered here, and nothing is decided."""
