{{- define "mapd.namespace" -}}
{{- .Values.namespace.name | default .Release.Namespace -}}
{{- end -}}

{{- define "mapd.labels" -}}
app.kubernetes.io/name: mapd
app.kubernetes.io/part-of: mapd
{{- end -}}

{{- define "mapd.image" -}}
{{- $image := printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- with .Values.image.digest }}{{ $image = printf "%s@%s" $image . }}{{ end -}}
{{- $image -}}
{{- end -}}

{{/* subjects is the one who everything is granted to. */}}
{{- define "mapd.subjects" -}}
subjects:
- {kind: ServiceAccount, name: mapd, namespace: {{ include "mapd.namespace" . }}}
{{- end -}}
