"""Why a candidate is wrong, or slow: findings from what the other rooms recorded."""
