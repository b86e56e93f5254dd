// Package templates holds the text of the pages that is not data: HTML and
// Markdown templates, the style sheet and the icon. It embeds them and does
// nothing else; it must not know what is put into them.
package templates

import "embed"

// FS holds the templates (PAGE.html.tmpl, PAGE.md.tmpl, and base and site
// with what pages share), icon.svg, site.js, and the style sheet in three parts:
// colours.css, style.css, and chart.css, which with the colours is also that
// of drawings as files of their own.
//
//go:embed *.tmpl *.css icon.svg site.js
var FS embed.FS
