"""Tunnels of Identity-Aware Proxy, as `gcloud compute start-iap-tunnel` opens them: the relay
protocol over a websocket, from `tunnel.cloudproxy.app`."""
