"""Operations: health checks and metrics. They only collect facts, and decide nothing."""
