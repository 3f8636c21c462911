module github.com/mapd-project/mapd/test/browser

go 1.26.7

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
)

require github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
