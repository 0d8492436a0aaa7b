CREATE MATERIALIZED VIEW revenue AS
SELECT product, count(*) AS orders, sum(cents) / 100 AS revenue
FROM orders
GROUP BY product;
