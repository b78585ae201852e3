module lmnative.test/client

go 1.18
